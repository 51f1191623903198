// A turn of a shared conversation: what was asked, done and answered, and nothing to click but what opens.
import type { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { TurnView } from "../turn_view.tsx";

export function SharedTurn({ turn }: { turn: Turn }) {
  return (
    <article class="turn" aria-label={t.turn}>
      <TurnView turn={turn} />
    </article>
  );
}
