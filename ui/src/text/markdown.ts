// Markdown of models as inert DOM: raw HTML is text, images are links, and only http, https and mailto are followed.
import DOMPurify, { type Config } from "dompurify";
import { Lexer, Marked, Parser, type Token, type Tokens, type TokensList } from "marked";
import { t } from "../texts.ts";
import { buildCodeBlock } from "./code_block.ts";

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
  ADD_URI_SAFE_ATTR: ["align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|#)/i,
};

const MAX_ROWS = 200; // of a table, until more are asked for
const MAX_CELLS = 60; // of a row
const PLAIN_CHUNK = 4_000; // characters of an element, so that the browser need not lay out a huge text at once

export type Links = TokensList["links"];

/** The blocks of a text; `links` are definitions from before, and take in those of this text. */
export function lexBlocks(text: string, links: Links = {}): Token[] {
  const lexer = new Lexer(marked.defaults);
  lexer.tokens.links = links;
  return lexer.lex(text);
}

/** `isFinal`: code is highlighted and gets its copy button; an open block changes with each token. */
export function renderBlock(token: Token, isFinal: boolean): DocumentFragment {
  if (token.type === "code") return asFragment(buildCodeBlock(token as Tokens.Code, isFinal));
  if (token.type === "table") return renderTable(token as Tokens.Table);
  return renderTokens([token], isFinal);
}

/** A text without any formatting, in pieces. */
export function renderPlain(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  for (let start = 0; start < text.length; start += PLAIN_CHUNK) {
    const chunk = document.createElement("div");
    chunk.className = "plain-text";
    chunk.textContent = text.slice(start, start + PLAIN_CHUNK);
    fragment.append(chunk);
  }
  return fragment;
}

function renderTokens(tokens: Token[], isFinal: boolean): DocumentFragment {
  const html = Parser.parse(tokens, marked.defaults);
  const fragment = DOMPurify.sanitize(html, POLICY) as unknown as DocumentFragment;
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of fragment.querySelectorAll("table")) wrapTable(table);
  const codes = isFinal ? listCodes(tokens) : [];
  fragment.querySelectorAll("pre").forEach((block, index) => {
    block.tabIndex = 0;
    const code = codes[index];
    if (code !== undefined) block.replaceWith(buildCodeBlock(code, true));
  });
  return fragment;
}

/** Code inside of lists and quotes. */
function listCodes(tokens: Token[]): Tokens.Code[] {
  const codes: Tokens.Code[] = [];
  marked.walkTokens(tokens, token => {
    if (token.type === "code") codes.push(token as Tokens.Code);
  });
  return codes;
}

/** A table of any size: its first rows, and a button for more. */
function renderTable(table: Tokens.Table): DocumentFragment {
  const part = (start: number): Tokens.Table => ({
    ...table,
    header: table.header.slice(0, MAX_CELLS),
    rows: table.rows.slice(start, start + MAX_ROWS).map(row => row.slice(0, MAX_CELLS)),
  });
  const fragment = renderTokens([part(0)], false);
  const body = fragment.querySelector("tbody");
  if (table.rows.length > MAX_ROWS && body !== null) {
    fragment.append(moreRowsButton(table.rows.length, body, start => part(start)));
  }
  return fragment;
}

function moreRowsButton(
  total: number,
  body: Element,
  part: (start: number) => Tokens.Table,
): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  let shown = MAX_ROWS;
  button.textContent = t.moreRows(total - shown);
  button.addEventListener("click", () => {
    const rows = renderTokens([part(shown)], false).querySelectorAll("tbody > tr");
    body.append(...rows);
    shown += MAX_ROWS;
    if (shown >= total) button.remove();
    else button.textContent = t.moreRows(total - shown);
  });
  return button;
}

function wrapTable(table: HTMLTableElement): void {
  const scroller = document.createElement("div");
  scroller.className = "table-scroll";
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", t.table);
  table.replaceWith(scroller);
  scroller.append(table);
}

function asFragment(node: Node): DocumentFragment {
  const fragment = document.createDocumentFragment();
  fragment.append(node);
  return fragment;
}
