// Markdown that grows: finished blocks stay in the DOM, the open one is drawn again, at most once per frame.
import { lexBlocks, renderMarkdown } from "./markdown.ts";

export class MarkdownStream {
  #source = "";
  #frozen = 0; // characters whose blocks are final in the DOM
  #frame = 0;
  readonly #tail = document.createElement("div");

  constructor(readonly host: HTMLElement) {
    host.append(this.#tail);
  }

  /** Shows a text that usually continues the one before; another one is drawn anew. */
  show(text: string): void {
    if (text === this.#source) return;
    if (!text.startsWith(this.#source.slice(0, this.#frozen))) this.#reset();
    this.#source = text;
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  /** Draws the whole text once more: link definitions and lists that span blocks come right only then. */
  finish(text: string): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#source = text;
    this.host.replaceChildren(renderMarkdown(text, true));
  }

  close(): void {
    cancelAnimationFrame(this.#frame);
  }

  #reset(): void {
    this.#frozen = 0;
    this.host.replaceChildren(this.#tail);
  }

  #draw(): void {
    const open = this.#source.slice(this.#frozen);
    const blocks = lexBlocks(open);
    while (blocks.at(-1)?.type === "space") blocks.pop();
    const closed = blocks.slice(0, -1).reduce((length, block) => length + block.raw.length, 0);
    if (closed > 0) this.host.insertBefore(renderMarkdown(open.slice(0, closed), true), this.#tail);
    this.#frozen += closed;
    this.#tail.replaceChildren(renderMarkdown(open.slice(closed), false));
  }
}
