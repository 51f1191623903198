// Opens a conversation at the run that the address names (`#task-ID`).
import { useEffect, useRef } from "preact/hooks";
import type { Conversation } from "../../state/conversation.ts";

const PREFIX = "#task-";

/** Reads older turns until the run is there, then shows its beginning, once. */
export function useTaskInAddress(conversation: Conversation): void {
  const shown = useRef("");
  const turns = conversation.turns.value;
  const isLoading = conversation.isLoading.value;
  useEffect(() => {
    const anchor = location.hash;
    if (!anchor.startsWith(PREFIX) || anchor === shown.current || isLoading || turns.length === 0) return;
    const taskId = decodeURIComponent(anchor.slice(PREFIX.length));
    if (turns.some(turn => turn.taskId === taskId)) {
      shown.current = anchor;
      requestAnimationFrame(() => document.getElementById(anchorOf(taskId))?.scrollIntoView({ block: "start" }));
    } else if (conversation.olderToken.value !== null) void conversation.load();
  }, [turns, isLoading]);
}

export const anchorOf = (taskId: string | null) => `task-${taskId ?? "new"}`;
