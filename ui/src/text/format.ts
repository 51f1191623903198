// Numbers, times and JSON for people.

export function formatDuration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const MAX_JSON = 20_000; // characters that are shown

export function formatJson(value: unknown): string {
  const text = JSON.stringify(value, null, 2) ?? "";
  return text.length > MAX_JSON ? `${text.slice(0, MAX_JSON)}\n…` : text;
}

export function formatMoment(iso: string): string {
  return new Date(iso).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** A moment as people say it: today its time, else its day. */
export function formatDay(iso: string): string {
  const moment = new Date(iso);
  const isToday = moment.toDateString() === new Date().toDateString();
  return isToday
    ? moment.toLocaleTimeString(undefined, { timeStyle: "short" })
    : moment.toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
