// The keys that the page knows.
import { isHelpOpen } from "../../state/shell.ts";
import { MODIFIER } from "../../state/shortcuts.ts";
import { t } from "../../texts.ts";
import { Dialog } from "./dialog.tsx";

const SHORTCUTS: [keyof typeof t.shortcutNames, string[]][] = [
  ["palette", [MODIFIER, "K"]],
  ["newConversation", [MODIFIER, "⇧", "O"]],
  ["toggleSidebar", [MODIFIER, "B"]],
  ["focusMessage", ["/"]],
  ["send", ["Enter"]],
  ["newLine", ["⇧", "Enter"]],
  ["stop", ["Esc"]],
  ["help", ["?"]],
];

export function HelpDialog() {
  if (!isHelpOpen.value) return null;
  return (
    <Dialog label={t.shortcuts} class="help" onClose={() => (isHelpOpen.value = false)}>
      <dl class="shortcuts">
        {SHORTCUTS.map(([name, keys]) => (
          <div key={name}>
            <dt>{t.shortcutNames[name]}</dt>
            <dd>
              {keys.map(key => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
