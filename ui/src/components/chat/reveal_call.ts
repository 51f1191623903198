// Opens a call in the list of steps and brings it into view.
export const idOfCall = (prefix: string, callId: string) => `${prefix}-${callId}`;

export function revealCall(prefix: string, callId: string): void {
  const element = document.getElementById(idOfCall(prefix, callId));
  if (element === null) return;
  const details = element.querySelector<HTMLDetailsElement>(":scope > details");
  if (details !== null) details.open = true;
  element.scrollIntoView({ block: "center" });
  element.querySelector<HTMLElement>("summary")?.focus({ preventScroll: true });
  element.classList.add("flash");
  setTimeout(() => element.classList.remove("flash"), 1600);
}
