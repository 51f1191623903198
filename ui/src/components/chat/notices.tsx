// Notices of a run: recovery, fallback, limits. A place in the queue is said only while it waits, an attempt
// only until one succeeds.
import type { Transcript } from "../../events/transcript.ts";

export function Notices({ transcript }: { transcript: Transcript }) {
  const shown = transcript.notices.filter((notice, index) => {
    const isLast = !transcript.notices.slice(index + 1).some(later => later.code === notice.code);
    if (notice.code === "queue") return isLast && transcript.state === "submitted";
    if (notice.code === "retry") return isLast && transcript.state !== "completed";
    return true;
  });
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
