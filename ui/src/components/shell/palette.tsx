// The command palette: conversations, views and actions by a few letters.
import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../../api/rest.ts";
import type { ConversationEntry } from "../../state/conversations.ts";
import { isPaletteOpen } from "../../state/shell.ts";
import { matchLabels } from "../../text/match.ts";
import { t } from "../../texts.ts";
import { Icon } from "../icons.tsx";
import { type Command, conversationCommand, listCommands } from "./commands.ts";
import { Dialog } from "./dialog.tsx";

const PAUSE = 150; // milliseconds after a key, before conversations are searched
const MAX_CONVERSATIONS = 8;

export function Palette() {
  return isPaletteOpen.value ? <PaletteDialog /> : null;
}

function PaletteDialog() {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const conversations = useFoundConversations(text);
  const commands = [...matchLabels(listCommands(), text), ...conversations.map(conversationCommand)];
  const close = () => (isPaletteOpen.value = false);
  const run = (command: Command | undefined) => {
    if (command === undefined) return;
    close();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && commands.length > 0) {
      event.preventDefault();
      setChosen((chosen + step + commands.length) % commands.length);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      run(commands[chosen]);
    }
  };
  return (
    <Dialog label={t.palette} class="palette" hasHead={false} onClose={close}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={commands.length > 0 ? `command-${chosen}` : undefined}
        aria-label={t.palette}
        placeholder={t.paletteHint}
        value={text}
        onInput={event => {
          setText(event.currentTarget.value);
          setChosen(0);
        }}
        onKeyDown={onKeyDown}
      />
      <CommandList commands={commands} chosen={chosen} onChoose={setChosen} onRun={run} />
    </Dialog>
  );
}

interface ListProps {
  commands: Command[];
  chosen: number;
  onChoose(index: number): void;
  onRun(command: Command): void;
}

function CommandList({ commands, chosen, onChoose, onRun }: ListProps) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  if (commands.length === 0) return <p class="hint palette-empty">{t.noMatches}</p>;
  return (
    <div id="palette-list" class="palette-list" role="listbox" aria-label={t.palette} ref={list}>
      {commands.map((command, index) => (
        <div key={command.key}>
          {command.group !== commands[index - 1]?.group && <h3 role="presentation">{t.commands[command.group]}</h3>}
          <div
            id={`command-${index}`}
            role="option"
            aria-selected={index === chosen}
            class="palette-command"
            onPointerMove={() => index !== chosen && onChoose(index)}
            onClick={() => onRun(command)}
          >
            <Icon name={command.icon} />
            <span dir="auto">{command.label}</span>
          </div>
        </div>
      ))}
    </div>
  );
}

/** The newest conversations, or those that the server finds. */
function useFoundConversations(text: string): ConversationEntry[] {
  const [found, setFound] = useState<ConversationEntry[]>([]);
  useEffect(() => {
    const query = new URLSearchParams({ page_size: String(MAX_CONVERSATIONS), query: text.trim() });
    let isCurrent = true;
    const timer = setTimeout(() => {
      get<{ conversations: ConversationEntry[] }>(`/v1/conversations?${query}`).then(
        page => isCurrent && setFound(page.conversations),
        () => isCurrent && setFound([]),
      );
    }, PAUSE);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text]);
  return found;
}
