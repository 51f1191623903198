// A search as the agents do it, with why each passage was found.
import { useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { pathOf } from "../../state/route.ts";
import { t } from "../../texts.ts";
import { Link } from "../link.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { SearchIcon } from "../parts/view_icons.tsx";
import { type Datasource, findPassages, type Passage, splitMatches, textOf, type Why } from "./knowledge.ts";

export function KnowledgeSearch({ datasources }: { datasources: Datasource[] }) {
  const [query, setQuery] = useState("");
  const [datasource, setDatasource] = useState("");
  const [passages, setPassages] = useState<Passage[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setBusy] = useState(false);
  const search = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setPassages(await findPassages(query.trim(), datasource));
      setProblem(null);
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <section class="try-search" aria-label={t.trySearch}>
      <form class="toolbar" role="search" onSubmit={event => void search(event)}>
        <div class="search-box search-wide">
          <SearchIcon />
          <input
            type="search"
            aria-label={t.trySearch}
            placeholder={t.trySearch}
            maxLength={2000}
            value={query}
            onInput={event => setQuery(event.currentTarget.value)}
          />
        </div>
        <select
          class="narrow"
          aria-label={t.views.knowledge.within}
          value={datasource}
          onChange={event => setDatasource(event.currentTarget.value)}
        >
          <option value="">{t.views.knowledge.everywhere}</option>
          {datasources.map(source => (
            <option key={source.name} value={source.name}>
              {source.title || source.name}
            </option>
          ))}
        </select>
        <button type="submit" disabled={isBusy || !query.trim()}>
          {t.search}
        </button>
      </form>
      {problem !== null && <ProblemNote text={problem} />}
      {passages !== null && <Passages passages={passages} />}
    </section>
  );
}

function Passages({ passages }: { passages: Passage[] }) {
  return (
    <>
      <p class="hint" role="status">
        {passages.length === 0 ? t.views.knowledge.nothing : t.views.knowledge.found(passages.length)}
      </p>
      <ol class="passages" aria-label={t.views.knowledge.passages}>
        {passages.map((passage, index) => (
          <PassageItem key={`${passage.document_id}-${index}`} passage={passage} />
        ))}
      </ol>
    </>
  );
}

function PassageItem({ passage }: { passage: Passage }) {
  const headings = passage.headings.filter(heading => heading !== passage.title);
  const words = [...(passage.why?.words ?? []), ...(passage.why?.exact ?? [])];
  return (
    <li class="passage">
      <div class="passage-head">
        <Link to={pathOf("knowledge", passage.document_id)} class="passage-title">
          {passage.title || passage.document_id}
        </Link>
        <span class="tag">{passage.datasource}</span>
      </div>
      {headings.length > 0 && <p class="hint">{headings.join(" › ")}</p>}
      <p class="passage-text" dir="auto">
        {splitMatches(textOf(passage), words).map((piece, index) =>
          piece.isMatch ? <mark key={index}>{piece.text}</mark> : piece.text,
        )}
      </p>
      <WhyLine why={passage.why ?? null} score={passage.score} />
    </li>
  );
}

function WhyLine({ why, score }: { why: Why | null; score: number }) {
  const texts = t.views.knowledge;
  return (
    <p class="why">
      <span>{texts.why}</span>
      {(why?.exact ?? []).map(word => (
        <span class="tag tag-accent" key={word}>
          {texts.exact(word)}
        </span>
      ))}
      {(why?.words ?? []).length > 0 && <span>{texts.words(why?.words ?? [])}</span>}
      <Score name={texts.wordScore} value={why?.word_score} />
      <Score name={texts.meaningScore} value={why?.meaning_score} />
      <span class="score">
        {texts.score} <strong>{score.toFixed(3)}</strong>
      </span>
    </p>
  );
}

/** A share of the best of this search. */
function Score({ name, value }: { name: string; value: number | null | undefined }) {
  if (value === null || value === undefined) return null;
  return (
    <span class="score">
      {name} <meter value={value} aria-label={name} /> <strong>{t.views.knowledge.percent(value)}</strong>
    </span>
  );
}
