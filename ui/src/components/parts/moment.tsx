// A moment next to now; the exact time is in its title.
import { signal } from "@preact/signals";
import { formatMoment } from "../../text/format.ts";
import { formatRelative } from "../../text/relative_time.ts";

const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 30_000);

export function Moment({ at }: { at: string }) {
  return (
    <time class="moment" dateTime={at} title={formatMoment(at)}>
      {formatRelative(at, now.value)}
    </time>
  );
}
