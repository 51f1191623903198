// Numbered sources of an answer, which open.
import type { Citation } from "../../generated/events.ts";
import { isOpenable, numberOf } from "../../text/citations.ts";
import { t } from "../../texts.ts";

export function Sources({ citations }: { citations: Citation[] }) {
  return (
    <section class="sources" aria-label={t.sources}>
      <h3>{t.sources}</h3>
      <ol>
        {citations.map((citation, index) => (
          <li key={index}>
            <Source citation={citation} number={numberOf(citation, index)} />
          </li>
        ))}
      </ol>
    </section>
  );
}

function Source({ citation, number }: { citation: Citation; number: number }) {
  const content = (
    <>
      <span class="source-number">{number}</span>
      <span class="source-title" dir="auto">
        {citation.title}
      </span>
      {isOpenable(citation.url) && <span class="source-host">{hostOf(citation.url)}</span>}
    </>
  );
  if (!isOpenable(citation.url)) return <span class="source">{content}</span>;
  return (
    <a class="source" href={citation.url} title={citation.url} target="_blank" rel="noopener noreferrer nofollow">
      {content}
    </a>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : "";
}
