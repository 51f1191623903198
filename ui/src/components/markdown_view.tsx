// Markdown in the page; it may still grow.
import { useEffect, useRef } from "preact/hooks";
import type { Citation } from "../generated/events.ts";
import { linkCitations } from "../text/citations.ts";
import { MarkdownStream } from "../text/markdown_stream.ts";

interface MarkdownProps {
  text: string;
  isFinal: boolean;
  citations?: Citation[];
  /** Told the text of each block that is finished while the text grows. */
  onBlock?: (text: string) => void;
}

export function MarkdownView({ text, isFinal, citations, onBlock }: MarkdownProps) {
  const host = useRef<HTMLDivElement>(null);
  const stream = useRef<MarkdownStream | null>(null);
  const latest = useRef(citations);
  latest.current = citations;
  useEffect(() => {
    const element = host.current!;
    const link = () => latest.current && latest.current.length > 0 && linkCitations(element, latest.current);
    stream.current = new MarkdownStream(element, onBlock, link);
    return () => stream.current?.close();
  }, []);
  useEffect(() => {
    if (isFinal) stream.current?.finish(text);
    else stream.current?.show(text);
  }, [text, isFinal, citations?.length]);
  return <div class="markdown" ref={host} dir="auto" aria-busy={!isFinal} />;
}
