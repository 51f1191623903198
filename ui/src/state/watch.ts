// Notices what others do in a conversation: other tabs say so at once, other people are asked for now and then.
const CHANNEL = "caipe.conversations";
const SECONDS = [4, 4, 8, 8, 15, 15, 30]; // between two looks; a quiet conversation is looked at less often

const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(CHANNEL);

/** Tells the other tabs of this browser that a conversation has changed. */
export function announceChange(contextId: string): void {
  channel?.postMessage(contextId);
}

/** Looks until it is told to stop; never while the tab is hidden, and at once when it is looked at again. */
export function watchConversation(contextId: string, look: () => Promise<void>): () => void {
  let looks = 0;
  let timer = 0;
  let isLooking = false;
  const lookNow = async () => {
    if (isLooking || document.visibilityState === "hidden") return;
    isLooking = true;
    await look().catch(() => undefined); // the next look may succeed; a run that is followed says what is wrong
    isLooking = false;
    plan();
  };
  const plan = () => {
    clearTimeout(timer);
    const seconds = SECONDS[Math.min(looks++, SECONDS.length - 1)]!;
    timer = window.setTimeout(() => void lookNow(), seconds * 1000);
  };
  const hurry = () => {
    looks = 0;
    void lookNow();
  };
  const onMessage = (event: MessageEvent) => {
    if (event.data === contextId) hurry();
  };
  plan();
  channel?.addEventListener("message", onMessage);
  document.addEventListener("visibilitychange", hurry);
  return () => {
    clearTimeout(timer);
    channel?.removeEventListener("message", onMessage);
    document.removeEventListener("visibilitychange", hurry);
  };
}
