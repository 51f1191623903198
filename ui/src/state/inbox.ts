// Requests that wait for the caller, with their count in the title of the page.
import { effect, signal } from "@preact/signals";
import { type InputRequestData, readInputRequest } from "../api/input_requests.ts";
import { describeError, get } from "../api/rest.ts";
import { isSignedOut } from "../api/session.ts";
import type { Approval, Form } from "../generated/events.ts";
import { t } from "../texts.ts";
import { Poll } from "./polling.ts";

export interface WaitingRequest {
  request_id: string;
  task_id: string;
  context_id: string;
  agent: string;
  expires_at: string | null;
  waiting_since: string | null;
  asked: Form | Approval;
  title: string;
}

interface RequestRow extends Omit<WaitingRequest, "asked" | "title" | "waiting_since"> {
  asked: InputRequestData;
  waiting_since?: string;
}

const SECONDS = 20;
const PAGE = 100; // requests; more than that wait for nobody

export const waiting = signal<WaitingRequest[]>([]);
export const problem = signal<string | null>(null);
export const isLoaded = signal(false);

let shown = "";

/** Whether it could be read. */
export async function loadInbox(): Promise<boolean> {
  if (isSignedOut.value) return false;
  try {
    const { requests } = await get<{ requests: RequestRow[] }>(`/v1/requests?page_size=${PAGE}`);
    const text = JSON.stringify(requests);
    if (text !== shown) waiting.value = requests.map(readRequest);
    shown = text;
    problem.value = null;
    isLoaded.value = true;
    return true;
  } catch (error) {
    problem.value = describeError(error);
    return false;
  }
}

function readRequest(row: RequestRow): WaitingRequest {
  return {
    ...row,
    waiting_since: row.waiting_since ?? null,
    asked: readInputRequest(row.asked, row.expires_at),
    title: describe(row),
  };
}

function describe(row: RequestRow): string {
  if (row.asked.approval) return t.approvalPlain(row.agent, row.asked.tool ?? "");
  return row.asked.input_title || row.asked.response || t.nav.inbox;
}

export function watchInbox(): void {
  new Poll(loadInbox, SECONDS);
  effect(() => {
    const count = waiting.value.length;
    document.title = count > 0 ? `(${count}) ${t.product}` : t.product;
  });
}
