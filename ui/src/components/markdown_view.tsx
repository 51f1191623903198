// Markdown in the page; it may still grow.
import { useEffect, useRef } from "preact/hooks";
import { MarkdownStream } from "../text/markdown_stream.ts";

export function MarkdownView({ text, isFinal }: { text: string; isFinal: boolean }) {
  const host = useRef<HTMLDivElement>(null);
  const stream = useRef<MarkdownStream | null>(null);
  useEffect(() => {
    stream.current = new MarkdownStream(host.current!);
    return () => stream.current?.close();
  }, []);
  useEffect(() => {
    if (isFinal) stream.current?.finish(text);
    else stream.current?.show(text);
  }, [text, isFinal]);
  return <div class="markdown" ref={host} dir="auto" aria-busy={!isFinal} />;
}
