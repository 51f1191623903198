// A quiet line that says what the connection of a run does, while it is not simply there.
import { useNow } from "../../state/clock.ts";
import type { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { SpinnerIcon } from "../icons.tsx";

export function ConnectionLine({ turn }: { turn: Turn }) {
  const isLost = turn.connection.value === "lost" && turn.isOpen.value;
  const retryAt = turn.retryAt.value;
  const now = useNow(isLost && retryAt !== null);
  const note = turn.note.value;
  if (!isLost && note === null) return null;
  const seconds = retryAt === null || now === 0 ? null : Math.max(0, (retryAt - now) / 1000);
  return (
    <p class="connection" role="status">
      {isLost && (
        <>
          <SpinnerIcon /> {turn.taskId === null && `${t.notSent} `}
          {t.lost(seconds)}
        </>
      )}
      {!isLost && note}
    </p>
  );
}
