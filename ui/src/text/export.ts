// A conversation as a file: all its pages are read.
import { decodeTask } from "../a2a/decode.ts";
import { listTasks } from "../a2a/client.ts";
import { questionText } from "../events/question.ts";
import { fold, type Transcript } from "../events/transcript.ts";
import { t } from "../texts.ts";

const PAGE = 50; // turns

interface ExportedTurn {
  task_id: string;
  started: string | null;
  transcript: Transcript;
}

export async function exportMarkdown(contextId: string, title: string): Promise<void> {
  const turns = await readTurns(contextId);
  const parts = [`# ${title}\n`, ...turns.map(turn => turnToMarkdown(turn.transcript, turn.started))];
  save(`${fileName(title)}.md`, "text/markdown", parts.join("\n"));
}

export async function exportJson(contextId: string, title: string): Promise<void> {
  const turns = await readTurns(contextId);
  const content = JSON.stringify({ context_id: contextId, title, turns }, null, 2);
  save(`${fileName(title)}.json`, "application/json", content);
}

/** All turns, the oldest first. */
async function readTurns(contextId: string): Promise<ExportedTurn[]> {
  const turns: ExportedTurn[] = [];
  let token = "";
  do {
    const page = await listTasks(contextId, token, PAGE);
    for (const task of page.tasks ?? []) {
      const events = decodeTask(task);
      turns.push({
        task_id: task.id,
        started: events[0]?.at ?? null,
        transcript: fold(events.map(item => item.event)),
      });
    }
    token = page.nextPageToken ?? "";
  } while (token !== "");
  return turns.sort((one, other) => (one.started ?? "").localeCompare(other.started ?? ""));
}

export function turnToMarkdown(transcript: Transcript, started: string | null): string {
  const lines = [`## ${t.you}${started === null ? "" : ` (${started.slice(0, 16).replace("T", " ")})`}`, ""];
  lines.push(questionText(transcript), "", `## ${t.product}`, "");
  if (transcript.plan !== null) {
    lines.push(...transcript.plan.steps.map(step => `- [${step.status === "completed" ? "x" : " "}] ${step.title}`), "");
  }
  if (transcript.error !== null) lines.push(`> ${transcript.error}`, "");
  lines.push(transcript.answer ?? transcript.partial ?? t.state[transcript.state], "");
  transcript.citations.forEach((citation, index) => {
    lines.push(`${citation.number ?? index + 1}. ${citation.title}${citation.url === null ? "" : ` <${citation.url}>`}`);
  });
  return `${lines.join("\n")}\n`;
}

export function fileName(title: string): string {
  return title.toLowerCase().replace(/[^\p{Letter}\p{Number}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation";
}

function save(name: string, type: string, content: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
