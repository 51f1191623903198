// Markdown of models as inert DOM: raw HTML is text, images are links, and only http, https and mailto are followed.
import DOMPurify, { type Config } from "dompurify";
import { Marked, type Token } from "marked";
import { highlightCode } from "./highlight.ts";
import { t } from "../texts.ts";

const escapeHtml = (text: string) => text.replace(/[&<>"']/g, character => `&#${character.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  renderer: {
    html: token => escapeHtml(token.text),
    image: token => `<a href="${escapeHtml(token.href)}">${escapeHtml(token.text || token.href)}</a>`,
  },
});

const POLICY: Config = {
  USE_PROFILES: { html: true },
  RETURN_DOM_FRAGMENT: true,
  FORBID_TAGS: ["img", "style", "form", "input", "iframe", "video", "audio", "button"],
  FORBID_ATTR: ["style", "class", "id", "name"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
};

const MAX_HIGHLIGHTED = 20_000; // characters of a block; a longer one stays plain

/** The blocks of a text; all but the last one are final while it grows. */
export function lexBlocks(text: string): Token[] {
  return marked.lexer(text);
}

/** `isFinal`: code is highlighted and gets its copy button; an open block changes with each token. */
export function renderMarkdown(text: string, isFinal: boolean): DocumentFragment {
  const languages = codeLanguages(text);
  const html = marked.parse(text) as string;
  const fragment = DOMPurify.sanitize(html, POLICY) as unknown as DocumentFragment;
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of fragment.querySelectorAll("table")) wrapTable(table);
  fragment.querySelectorAll("pre").forEach((block, index) => {
    decorateCode(block, languages[index] ?? "", isFinal);
  });
  return fragment;
}

/** The languages of the fenced blocks, in order: the sanitizer drops classes. */
function codeLanguages(text: string): string[] {
  const languages: string[] = [];
  marked.walkTokens(marked.lexer(text), token => {
    if (token.type === "code") languages.push(String(token["lang"] ?? "").split(/\s/)[0] ?? "");
  });
  return languages;
}

function wrapTable(table: HTMLTableElement): void {
  const scroller = document.createElement("div");
  scroller.className = "table-scroll";
  scroller.tabIndex = 0;
  table.replaceWith(scroller);
  scroller.append(table);
}

function decorateCode(block: HTMLPreElement, language: string, isFinal: boolean): void {
  const code = block.querySelector("code");
  const text = code?.textContent ?? "";
  block.tabIndex = 0;
  if (!isFinal || code === null) return;
  if (text.length <= MAX_HIGHLIGHTED) highlightCode(code, text, language);
  const frame = document.createElement("div");
  frame.className = "code-block";
  const head = document.createElement("div");
  head.className = "code-head";
  const label = document.createElement("span");
  label.textContent = language;
  head.append(label, copyButton(text));
  block.replaceWith(frame);
  frame.append(head, block);
}

function copyButton(text: string): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = t.copy;
  button.addEventListener("click", () => {
    void navigator.clipboard.writeText(text).then(() => {
      button.textContent = t.copied;
      setTimeout(() => (button.textContent = t.copy), 1500);
    });
  });
  return button;
}
