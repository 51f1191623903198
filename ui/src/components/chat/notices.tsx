// Notices of a run: recovery, fallback, limits. A place in the queue is said only while it waits.
import type { Transcript } from "../../events/transcript.ts";

export function Notices({ transcript }: { transcript: Transcript }) {
  const notices = transcript.notices.filter(notice => notice.code !== "queue");
  const queue = transcript.notices.findLast(notice => notice.code === "queue");
  const shown = transcript.state === "submitted" && queue !== undefined ? [...notices, queue] : notices;
  return (
    <>
      {shown.map((notice, index) => (
        <p class="notice" key={index}>
          {notice.text}
        </p>
      ))}
    </>
  );
}
