// Markdown that grows: finished blocks stay in the DOM, the open one is drawn again, at most once per frame and within
// a budget of time; what is left waits for the next frame.
import type { Token } from "marked";
import { readWindow, type Piece } from "./block_window.ts";
import { type Links, renderBlock, renderPlain } from "./markdown.ts";

const OPEN_WINDOW = 6_000; // characters that are read again while they grow
const WHOLE_WINDOW = 64_000; // characters of a finished text that are read at once
const BUDGET = 7; // milliseconds of a frame
const PAUSE = 3; // times as long as the last drawing took

/** What may still change as the text grows; plain text only gets longer. */
const isOpenBlock = (piece: Piece) => piece.token !== null && piece.token.type !== "space";

export class MarkdownStream {
  #source = "";
  #frozen = 0; // characters whose blocks are final in the DOM
  #links: Links = {};
  #head = ""; // of a table that was divided
  #isCut = false;
  #isFinal = false;
  #frame = 0;
  #notBefore = 0;
  #target: HTMLElement | DocumentFragment;
  readonly #tail = document.createElement("div");

  /** `onBlock` is told the text of each block that is finished while the text grows; `onDrawn` that all is drawn. */
  constructor(
    readonly host: HTMLElement,
    readonly onBlock: (text: string) => void = () => undefined,
    readonly onDrawn: () => void = () => undefined,
  ) {
    this.#target = host;
    host.append(this.#tail);
  }

  /** Shows a text that usually continues the one before; another one is drawn anew. */
  show(text: string): void {
    if (text === this.#source && !this.#isFinal) return;
    if (this.#isFinal || !text.startsWith(this.#source.slice(0, this.#frozen))) this.#reset(this.host);
    this.#source = text;
    this.#isFinal = false;
    this.#plan();
  }

  /** The text is whole. Link definitions and blocks that were divided come right only now: with them all is drawn once more. */
  finish(text: string): void {
    const continues = text.startsWith(this.#source.slice(0, this.#frozen));
    this.#source = text;
    this.#isFinal = true;
    if (this.#frozen === 0) this.#reset(this.host);
    else if (!continues || this.#isCut || Object.keys(this.#links).length > 0) {
      this.#reset(document.createDocumentFragment());
    }
    this.#notBefore = 0;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#draw();
  }

  close(): void {
    cancelAnimationFrame(this.#frame);
  }

  #reset(target: HTMLElement | DocumentFragment): void {
    this.#frozen = 0;
    this.#links = {};
    this.#head = "";
    this.#isCut = false;
    this.#target = target;
    if (target === this.host) {
      this.#tail.replaceChildren();
      this.host.replaceChildren(this.#tail);
    }
  }

  #plan(): void {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (performance.now() < this.#notBefore) this.#plan();
      else this.#draw();
    });
  }

  #draw(): void {
    const start = performance.now();
    let isDone = false;
    while (!isDone && performance.now() - start < BUDGET) isDone = this.#drawWindow(start);
    const used = performance.now() - start;
    if (!this.#isFinal) this.#notBefore = performance.now() + PAUSE * used;
    if (!isDone) this.#plan();
    else if (this.#isFinal) this.#end();
  }

  /** Draws what one window shows; whether that was all. */
  #drawWindow(startedAt: number): boolean {
    const size = this.#isFinal ? WHOLE_WINDOW : OPEN_WINDOW;
    const { pieces, isCut, isAtEnd, head } = readWindow(this.#source, this.#frozen, size, this.#links, this.#head);
    this.#isCut ||= isCut;
    if (!isAtEnd) this.#head = head;
    const last = isAtEnd && !this.#isFinal ? pieces.findLastIndex(isOpenBlock) : -1;
    for (const [index, piece] of pieces.entries()) {
      if (index === last) return this.#drawTail(piece.token);
      this.#freeze(piece);
      if (isAtEnd) this.#head = "";
      if (performance.now() - startedAt >= BUDGET && index < pieces.length - 1) return false;
    }
    this.#tail.replaceChildren();
    return isAtEnd;
  }

  #freeze(piece: Piece): void {
    const raw = this.#source.slice(this.#frozen, this.#frozen + piece.length);
    this.#frozen += piece.length;
    if (piece.token?.type === "space" || piece.token?.type === "def") return;
    const nodes = piece.token === null ? renderPlain(raw) : renderBlock(piece.token, true);
    if (!this.#isFinal) this.onBlock(nodes.textContent ?? "");
    if (this.#target === this.host) this.host.insertBefore(nodes, this.#tail);
    else this.#target.append(nodes);
  }

  /** The open block; code only gets longer, so that its text is added to. */
  #drawTail(token: Token | null): boolean {
    const code = this.#tail.querySelector("pre > code")?.firstChild;
    if (token?.type === "code" && code instanceof Text && this.#tail.childElementCount === 1) {
      const text = String(token["text"]);
      if (text.startsWith(code.data)) code.appendData(text.slice(code.data.length));
      else code.data = text;
    } else if (token !== null) {
      this.#tail.replaceChildren(renderBlock(token, false));
    }
    return true;
  }

  #end(): void {
    if (this.#target === this.host) this.#tail.remove();
    else this.host.replaceChildren(this.#target);
    this.#target = this.host;
    this.onDrawn();
  }
}
