// A block of code: highlighted when it is finished and not too long, with its language and a copy button.
import type { Tokens } from "marked";
import { t } from "../texts.ts";
import { copyText } from "./clipboard.ts";
import { highlightCode } from "./highlight.ts";

const MAX_HIGHLIGHTED = 20_000; // characters of a block; a longer one stays plain
const MAX_SHOWN = 200_000; // characters; all of it can be copied

export function buildCodeBlock(token: Tokens.Code, isFinal: boolean): HTMLElement {
  const language = (token.lang ?? "").split(/\s/)[0] ?? "";
  const frame = document.createElement("div");
  frame.className = "code-block";
  const head = document.createElement("div");
  head.className = "code-head";
  const label = document.createElement("span");
  label.textContent = language;
  head.append(label);
  const block = document.createElement("pre");
  block.tabIndex = 0;
  const code = document.createElement("code");
  code.textContent = token.text.slice(0, MAX_SHOWN);
  block.append(code);
  frame.append(head, block);
  if (!isFinal) return frame;
  head.append(copyButton(token.text));
  if (token.text.length <= MAX_HIGHLIGHTED) highlightCode(code, token.text, language);
  return frame;
}

function copyButton(text: string): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = t.copy;
  button.addEventListener("click", () => {
    void copyText(text).then(isCopied => {
      button.textContent = isCopied ? t.copied : t.copyFailed;
      setTimeout(() => (button.textContent = t.copy), 1500);
    });
  });
  return button;
}
