// Code highlighting of a few languages, as DOM nodes with classes of ours.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import sql from "highlight.js/lib/languages/sql";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = { bash, diff, go, ini, javascript, json, python, sql, yaml };
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Replaces the text of a code element by spans. The highlighter's HTML is read as text and classes alone. */
export function highlightCode(code: Element, text: string, language: string): void {
  if (!hljs.getLanguage(language)) return;
  const html = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  const parsed = new DOMParser().parseFromString(html, "text/html").body;
  code.replaceChildren(...Array.from(parsed.childNodes, copyNode));
}

function copyNode(node: Node): Node {
  if (!(node instanceof Element)) return document.createTextNode(node.textContent ?? "");
  const span = document.createElement("span");
  span.className = node.className;
  span.append(...Array.from(node.childNodes, copyNode));
  return span;
}
