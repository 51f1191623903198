// The turns of a conversation: the newest in view, older ones as one scrolls up.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "../../state/conversation.ts";
import { t } from "../../texts.ts";
import { Icon } from "../icons.tsx";
import { useTaskInAddress } from "./task_in_address.ts";
import { TurnSlot } from "./turn_slot.tsx";

const NEAR_END = 90; // pixels
const NEAR_START = 800;

interface TurnListProps {
  conversation: Conversation;
  onAsk(text: string): void;
}

export function TurnList({ conversation, onAsk }: TurnListProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useStickyEnd(scroller, conversation);
  useOlderTurns(scroller, conversation);
  useTaskInAddress(conversation);
  const turns = conversation.turns.value;
  return (
    <div class="turns-area">
      <div class="turns" ref={scroller} tabIndex={0} role="log" aria-label={t.nav.chat} aria-live="off">
        <div class="turns-content">
          {conversation.isLoading.value && (
            <p class="hint loading" role="status">
              {t.loadingConversation}
            </p>
          )}
          {conversation.problem.value !== null && (
            <div class="problem turn-problem" role="alert">
              <Icon name="alert" />
              <p>{conversation.problem.value}</p>
              <button type="button" onClick={() => void conversation.load()}>
                {t.retry}
              </button>
            </div>
          )}
          {turns.map((turn, index) => (
            <TurnSlot
              key={turn.key}
              turn={turn}
              isLast={index === turns.length - 1}
              onNear={() => conversation.keepAround(index)}
              onAsk={onAsk}
              onRetry={() => conversation.retry(turn)}
              onDrop={() => conversation.drop(turn)}
            />
          ))}
        </div>
      </div>
      {!isAtEnd && turns.length > 0 && (
        <button type="button" class="jump" title={t.jumpToLatest} onClick={() => scrollToEnd(scroller.current!)}>
          <Icon name="arrowDown" />
          <span class="visually-hidden">{t.jumpToLatest}</span>
        </button>
      )}
    </div>
  );
}

function scrollToEnd(scroller: HTMLElement): void {
  scroller.scrollTop = scroller.scrollHeight;
}

/** Keeps the end in view, until the reader scrolls up; whether it is in view. */
function useStickyEnd(scroller: { current: HTMLDivElement | null }, conversation: Conversation): boolean {
  const [isAtEnd, setAtEnd] = useState(true);
  const isFollowing = useRef(true);
  const last = conversation.turns.value.at(-1);
  useLayoutEffect(() => {
    isFollowing.current = true;
    scrollToEnd(scroller.current!);
  }, [last, conversation]);
  useEffect(() => {
    const element = scroller.current!;
    let before = element.scrollTop;
    const onScroll = () => {
      const isNearEnd = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END;
      // Only a person scrolls up: what is drawn makes the list longer, and the end goes away by itself.
      if (isNearEnd) isFollowing.current = true;
      else if (element.scrollTop < before) isFollowing.current = false;
      before = element.scrollTop;
      setAtEnd(isNearEnd || isFollowing.current);
    };
    const observer = new ResizeObserver(() => {
      if (isFollowing.current) scrollToEnd(element);
    });
    observer.observe(element.firstElementChild!);
    observer.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, [conversation]);
  return isAtEnd;
}

/** Reads older turns when the reader comes near the first one, and leaves what is in view where it is. */
function useOlderTurns(scroller: { current: HTMLDivElement | null }, conversation: Conversation): void {
  const turns = conversation.turns.value;
  const before = useRef({ first: turns[0], height: 0 });
  useLayoutEffect(() => {
    const element = scroller.current!;
    const isOlder = before.current.first !== undefined && before.current.first !== turns[0];
    if (isOlder) element.scrollTop += element.scrollHeight - before.current.height;
    before.current = { first: turns[0], height: element.scrollHeight };
    const isShort = element.scrollHeight < element.clientHeight + NEAR_START;
    if (isShort && turns.length > 0 && conversation.olderToken.value !== null) void conversation.load();
  }, [turns, conversation.isLoading.value]);
  useEffect(() => {
    const element = scroller.current!;
    const onScroll = () => {
      before.current.height = element.scrollHeight;
      if (element.scrollTop < NEAR_START && conversation.olderToken.value !== null) void conversation.load();
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => element.removeEventListener("scroll", onScroll);
  }, [conversation]);
}
