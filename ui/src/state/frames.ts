// Work that is done at most once per frame; a hidden tab has no frames, so there a timer does it.
const HIDDEN_MILLISECONDS = 250;

export function onNextFrame(work: () => void): () => void {
  if (document.visibilityState === "hidden") {
    const timer = setTimeout(work, HIDDEN_MILLISECONDS);
    return () => clearTimeout(timer);
  }
  let isDone = false;
  const once = () => {
    if (isDone) return;
    isDone = true;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    work();
  };
  const frame = requestAnimationFrame(once);
  const timer = setTimeout(once, HIDDEN_MILLISECONDS); // a tab that is hidden meanwhile
  return () => {
    isDone = true;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
  };
}
