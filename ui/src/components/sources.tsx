// Numbered sources of an answer.
import type { Citation } from "../generated/events.ts";
import { t } from "../texts.ts";

export function Sources({ citations }: { citations: Citation[] }) {
  return (
    <section class="sources" aria-label={t.sources}>
      <h3>{t.sources}</h3>
      <ol>
        {citations.map((citation, index) => (
          <li key={index}>
            {citation.url !== null && /^https?:/i.test(citation.url) ? (
              <a href={citation.url} target="_blank" rel="noopener noreferrer nofollow">
                {citation.title}
              </a>
            ) : (
              citation.title
            )}
          </li>
        ))}
      </ol>
    </section>
  );
}
