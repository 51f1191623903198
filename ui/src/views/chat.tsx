// A conversation: its turns, and the message box.
import { useEffect, useRef, useState } from "preact/hooks";
import { Composer } from "../components/composer.tsx";
import { TurnView } from "../components/turn_view.tsx";
import { Conversation } from "../state/conversation.ts";
import { loadConversations } from "../state/conversations.ts";
import { navigate, pathOf } from "../state/route.ts";
import { pendingQuestion } from "../state/start.ts";
import { t } from "../texts.ts";

export function ChatView({ contextId }: { contextId: string | null }) {
  const conversation = useConversation(contextId);
  const bottom = useStickyScroll(conversation);
  const turns = conversation.turns.value;
  const last = turns.at(-1);
  const isWorking = last !== undefined && last.isOpen.value && !last.isAtRest;
  const ask = (text: string) => {
    conversation.ask(text);
    navigate(pathOf("chat", conversation.contextId), contextId === null);
    setTimeout(() => void loadConversations(), 500);
  };
  useEffect(() => {
    const question = pendingQuestion.value;
    if (question === null || contextId !== null) return;
    pendingQuestion.value = null;
    ask(question);
  }, [conversation]);
  return (
    <div class="chat">
      <div class="turns" role="log" aria-label={t.nav.chat} aria-live="off">
        {conversation.olderToken.value !== null && (
          <button type="button" class="quiet" onClick={() => void conversation.load()}>
            {t.loadEarlier}
          </button>
        )}
        {conversation.problem.value !== null && (
          <p class="problem" role="alert">
            {conversation.problem.value}
          </p>
        )}
        {turns.length === 0 && contextId === null && <Welcome onAsk={ask} />}
        {turns.map((turn, index) => (
          <TurnView key={turn.taskId ?? `new-${index}`} turn={turn} onAsk={ask} />
        ))}
        <div ref={bottom} />
      </div>
      <Composer isWorking={isWorking} onSend={ask} onStop={() => void last?.stop()} />
    </div>
  );
}

function useConversation(contextId: string | null): Conversation {
  const [conversation, setConversation] = useState(() => new Conversation(contextId ?? crypto.randomUUID()));
  useEffect(() => {
    if (contextId === conversation.contextId && conversation.turns.value.length > 0) return undefined;
    const opened = new Conversation(contextId ?? crypto.randomUUID());
    conversation.close();
    setConversation(opened);
    if (contextId !== null) void opened.load();
    return undefined;
  }, [contextId]);
  useEffect(() => () => conversation.close(), [conversation]);
  return conversation;
}

/** Keeps the end in view, until the reader scrolls up. */
function useStickyScroll(conversation: Conversation) {
  const bottom = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const scroller = bottom.current?.parentElement;
    if (!scroller) return undefined;
    let isAtEnd = true;
    const onScroll = () => {
      isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
    };
    const observer = new ResizeObserver(() => {
      if (isAtEnd) scroller.scrollTop = scroller.scrollHeight;
    });
    for (const child of scroller.children) observer.observe(child);
    const added = new MutationObserver(() => {
      for (const child of scroller.children) observer.observe(child);
    });
    added.observe(scroller, { childList: true });
    scroller.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      added.disconnect();
      scroller.removeEventListener("scroll", onScroll);
    };
  }, [conversation]);
  return bottom;
}

function Welcome({ onAsk }: { onAsk(text: string): void }) {
  return (
    <section class="welcome">
      <h1>{t.welcome}</h1>
      <div class="suggestions">
        {t.suggestions.map(text => (
          <button type="button" key={text} onClick={() => onAsk(text)}>
            {text}
          </button>
        ))}
      </div>
    </section>
  );
}
