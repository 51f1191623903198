// Cuts a long text into pieces that can be read one at a time: whole blocks where there are, parts of a huge one otherwise.
import type { Token, Tokens } from "marked";
import { lexBlocks, type Links } from "./markdown.ts";

/** What to draw next: a block, or text of a line that is too long to be read as Markdown. */
export interface Piece {
  token: Token | null;
  length: number;
}

/** The next pieces of `text` from `start` on, read with a window of `size` characters. When the window ends before the
 * text, its last block may go on: it is given only in parts that are whole in themselves. `isCut` says that a block
 * was divided. The last piece of a text that may still grow is open. */
export interface BlockWindow {
  pieces: Piece[];
  isCut: boolean;
  isAtEnd: boolean;
  /** The head of a table that was divided: the next window is read as if it stood there. */
  head: string;
}

export function readWindow(text: string, start: number, size: number, links: Links, head = ""): BlockWindow {
  const isAtEnd = text.length - start <= size;
  const open = text.slice(start, start + size);
  if (!isAtEnd && !open.includes("\n")) return cutLine(text, start);
  const source = isAtEnd ? open : open.slice(0, open.lastIndexOf("\n") + 1);
  const pieces = lexBlocks(head + source, links).map(token => ({ token, length: token.raw.length }));
  if (pieces[0] !== undefined) pieces[0].length -= head.length;
  if (isAtEnd) return { pieces, isCut: false, isAtEnd, head };
  while (pieces.at(-1)?.token.type === "space") pieces.pop();
  if (pieces.length > 1) return { pieces: pieces.slice(0, -1), isCut: false, isAtEnd, head: "" };
  const block = pieces[0]!.token;
  const nextHead = block.type === "table" ? (/^.*\n.*\n/.exec(block.raw)?.[0] ?? "") : "";
  return { pieces: cutBlock(text, start, block, source), isCut: true, isAtEnd, head: nextHead };
}

/** A line that is longer than the window: all of it is plain. */
function cutLine(text: string, start: number): BlockWindow {
  const end = text.indexOf("\n", start);
  const length = (end < 0 ? text.length : end + 1) - start;
  return { pieces: [{ token: null, length }], isCut: true, isAtEnd: end < 0, head: "" };
}

function cutBlock(text: string, start: number, token: Token, source: string): Piece[] {
  if (token.type === "code") return [wholeCode(text, start, token as Tokens.Code, source)];
  if (token.type === "list") {
    const items = (token as Tokens.List).items.slice(0, -1);
    const length = items.reduce((sum, item) => sum + item.raw.length, 0);
    if (items.length > 0) return [{ token: { ...token, items } as Token, length }];
  }
  return [{ token, length: source.length }];
}

/** A fence that goes on beyond the window: up to its end, which is the end of the text when it is not closed. */
function wholeCode(text: string, start: number, token: Tokens.Code, source: string): Piece {
  const fence = /^ {0,3}(`{3,}|~{3,})/.exec(source)?.[1];
  if (fence === undefined) return { token, length: source.length };
  const head = source.indexOf("\n") + 1;
  const close = text.indexOf(`\n${fence}`, start + head - 1);
  const end = close < 0 ? text.length : close;
  const after = close < 0 ? -1 : text.indexOf("\n", close + 1);
  const length = (after < 0 ? text.length : after + 1) - start;
  return { token: { ...token, text: text.slice(start + head, end) }, length };
}
