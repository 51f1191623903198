// The numbers of sources in an answer, as links to them.
import type { Citation } from "../generated/events.ts";

const MAX_NODES = 20_000; // text nodes that are looked at
const MARK = /\[(\d{1,3})\]/g;

export function isOpenable(url: string | null): url is string {
  return url !== null && /^https?:/i.test(url);
}

/** The number that an answer calls a source by. */
export function numberOf(citation: Citation, index: number): number {
  return citation.number ?? index + 1;
}

export function linkCitations(host: HTMLElement, citations: Citation[]): void {
  const byNumber = new Map(citations.map((citation, index) => [numberOf(citation, index), citation]));
  const walker = document.createTreeWalker(host, NodeFilter.SHOW_TEXT);
  const nodes: Text[] = [];
  for (let node = walker.nextNode(); node !== null && nodes.length < MAX_NODES; node = walker.nextNode()) {
    if (node.parentElement?.closest("pre, code, a") === null && (node as Text).data.includes("[")) nodes.push(node as Text);
  }
  for (const node of nodes) linkNode(node, byNumber);
}

function linkNode(node: Text, byNumber: ReadonlyMap<number, Citation>): void {
  const parts: (Node | string)[] = [];
  let end = 0;
  for (const match of node.data.matchAll(MARK)) {
    const citation = byNumber.get(Number(match[1]));
    if (citation === undefined) continue;
    parts.push(node.data.slice(end, match.index), buildMark(match[1]!, citation));
    end = match.index + match[0].length;
  }
  if (parts.length > 0) node.replaceWith(...parts, node.data.slice(end));
}

function buildMark(number: string, citation: Citation): HTMLElement {
  const mark = document.createElement(isOpenable(citation.url) ? "a" : "span");
  mark.className = "cite";
  mark.textContent = number;
  mark.title = citation.title;
  if (mark instanceof HTMLAnchorElement && citation.url !== null) {
    mark.href = citation.url;
    mark.target = "_blank";
    mark.rel = "noopener noreferrer nofollow";
  }
  return mark;
}
