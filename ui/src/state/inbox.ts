// Requests that wait for the caller, with their count in the title of the page.
import { effect, signal } from "@preact/signals";
import { get } from "../api/rest.ts";
import { t } from "../texts.ts";

export interface WaitingRequest {
  request_id: string;
  context_id: string;
  agent: string;
  expires_at: string | null;
  title: string;
}

interface RequestRow {
  request_id: string;
  context_id: string;
  agent: string;
  expires_at: string | null;
  asked: { approval?: boolean; tool?: string; input_title?: string; response?: string };
}

const SECONDS = 20;

export const waiting = signal<WaitingRequest[]>([]);
export const problem = signal<string | null>(null);

export async function loadInbox(): Promise<void> {
  try {
    const { requests } = await get<{ requests: RequestRow[] }>("/v1/requests?page_size=100");
    waiting.value = requests.map(row => ({ ...row, title: describe(row) }));
    problem.value = null;
  } catch (error) {
    problem.value = error instanceof Error ? error.message : String(error);
  }
}

function describe(row: RequestRow): string {
  if (row.asked.approval) return t.approvalWants(row.agent, row.asked.tool ?? "");
  return row.asked.input_title || row.asked.response || t.nav.inbox;
}

export function watchInbox(): void {
  void loadInbox();
  setInterval(() => void loadInbox(), SECONDS * 1000);
  effect(() => {
    const count = waiting.value.length;
    document.title = count > 0 ? `(${count}) ${t.product}` : t.product;
  });
}
