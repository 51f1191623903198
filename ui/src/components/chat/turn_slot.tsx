// The place of a turn in the list. What is far from what is looked at is not drawn; its place keeps its height.
import { useEffect, useRef, useState } from "preact/hooks";
import { hasEnded } from "../../events/transcript.ts";
import type { Turn } from "../../state/turn.ts";
import { t } from "../../texts.ts";
import { anchorOf } from "./task_in_address.ts";
import { TurnView } from "../turn_view.tsx";

const MARGIN = "1200px 0px"; // how near a turn is drawn
const UNKNOWN_HEIGHT = 280; // pixels, of a turn that was never drawn

interface SlotProps {
  turn: Turn;
  isLast: boolean;
  onNear(): void;
  onAsk(text: string): void;
  onRetry(): void;
  onDrop(): void;
}

export function TurnSlot({ turn, isLast, onNear, onAsk, onRetry, onDrop }: SlotProps) {
  const slot = useRef<HTMLElement>(null);
  const [isNear, setNear] = useState(isLast);
  useEffect(() => {
    const element = slot.current!;
    const observer = new IntersectionObserver(
      entries => {
        const entry = entries.at(-1)!;
        if (!entry.isIntersecting && turn.isLoaded.value) turn.height = element.offsetHeight;
        setNear(entry.isIntersecting);
      },
      { root: element.parentElement?.parentElement ?? null, rootMargin: MARGIN },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, [turn]);
  useEffect(() => {
    if (!isNear) return;
    onNear();
    if (!turn.isLoaded.value) void turn.reload().catch(() => undefined);
  }, [isNear]);
  const isDrawn = turn.isLoaded.value && (isNear || isLast || !hasEnded(turn.transcript.value));
  const style = isDrawn ? {} : { height: `${turn.height || UNKNOWN_HEIGHT}px` };
  return (
    <article ref={slot} id={anchorOf(turn.taskId)} class="turn" style={style} aria-label={t.turn}>
      {isDrawn && <TurnView turn={turn} onAsk={onAsk} onRetry={onRetry} onDrop={onDrop} />}
    </article>
  );
}
