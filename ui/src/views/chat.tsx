// A conversation: its turns, and the message box.
import { useEffect, useState } from "preact/hooks";
import { ChatHeader } from "../components/chat/chat_header.tsx";
import { Composer } from "../components/chat/composer.tsx";
import { TurnList } from "../components/chat/turn_list.tsx";
import { Welcome } from "../components/chat/welcome.tsx";
import { announcement } from "../state/announcements.ts";
import { Conversation } from "../state/conversation.ts";
import { loadConversations } from "../state/conversations.ts";
import { NEW_CONVERSATION } from "../state/drafts.ts";
import { randomId } from "../state/ids.ts";
import { notifyOfTurn } from "../state/notifications.ts";
import { navigate, pathOf } from "../state/route.ts";
import { showProblem } from "../state/toasts.ts";

const LISTED_AFTER = 600; // milliseconds, until the server lists a new question

export function ChatView({ contextId }: { contextId: string | null }) {
  const conversation = useConversation(contextId);
  const turns = conversation.turns.value;
  const last = turns.at(-1);
  const isWorking = last?.isWorking.value ?? false;
  const ask = (text: string) => {
    const turn = conversation.ask(text);
    notifyOfTurn(turn);
    conversation.watch();
    navigate(pathOf("chat", conversation.contextId), contextId === null);
    setTimeout(() => void loadConversations(), LISTED_AFTER);
  };
  useEffect(() => {
    if (last !== undefined) void loadConversations();
  }, [last?.transcript.value.state]);
  const isNew = turns.length === 0 && contextId === null;
  const stop = () => void last?.stop().catch(showProblem);
  return (
    <div class={`chat ${isNew ? "chat-new" : ""}`}>
      {!isNew && <ChatHeader contextId={conversation.contextId} />}
      {isNew ? <Welcome onAsk={ask} /> : <TurnList conversation={conversation} onAsk={ask} />}
      <Composer
        draftOf={contextId ?? NEW_CONVERSATION}
        isWorking={isWorking}
        isStopping={last?.isStopping.value ?? false}
        onSend={ask}
        onStop={stop}
      />
      <p class="visually-hidden" role="status" aria-live="polite">
        {announcement.value}
      </p>
    </div>
  );
}

/** The conversation of the address; a new one until its first question gives it an address. */
function useConversation(contextId: string | null): Conversation {
  const [conversation, setConversation] = useState(() => openConversation(contextId));
  let current = conversation;
  if (contextId !== null ? contextId !== conversation.contextId : conversation.turns.peek().length > 0) {
    current = openConversation(contextId);
    setConversation(current);
  }
  useEffect(() => () => current.close(), [current]);
  return current;
}

function openConversation(contextId: string | null): Conversation {
  const conversation = new Conversation(contextId ?? randomId());
  if (contextId !== null) {
    void conversation.load();
    conversation.watch();
  }
  return conversation;
}
