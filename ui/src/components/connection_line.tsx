// A quiet line that says what the connection of a run does, while it is not simply there.
import type { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";

export function ConnectionLine({ turn }: { turn: Turn }) {
  if (turn.connection.value !== "lost" || !turn.isOpen.value) return null;
  const retryAt = turn.retryAt.value;
  const seconds = retryAt === null ? null : Math.max(0, (retryAt - Date.now()) / 1000);
  return (
    <p class="hint" role="status">
      {t.lost(seconds)}
    </p>
  );
}
