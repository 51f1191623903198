// The knowledge base: datasources and their jobs, adding one, and a search that says why a passage was found.
import { useState } from "preact/hooks";
import { request } from "../api/rest.ts";
import { Page } from "../components/page.tsx";
import { useResource } from "../state/resource.ts";
import { t } from "../texts.ts";
import { formatMoment } from "../text/format.ts";

interface Datasource {
  name: string;
  title: string;
  kind: string;
  location: string;
  documents: number;
  chunks: number;
  embedded: number;
  refreshed: string | null;
}

interface Job {
  job_id: string;
  datasource: string;
  state: string;
  done: number;
  total: number | null;
  problem: string;
}

export function KnowledgeView() {
  const sources = useResource<{ datasources: Datasource[] }>("/v1/datasources", 5);
  const jobs = useResource<{ jobs: Job[] }>("/v1/jobs", 5);
  const running = (jobs.value?.jobs ?? []).filter(job => job.state === "waiting" || job.state === "running");
  return (
    <Page title={t.nav.knowledge} problem={sources.problem}>
      <Search />
      <h2>{t.datasources}</h2>
      <AddDatasource onAdded={sources.reload} />
      {running.map(job => (
        <p class="hint" role="status" key={job.job_id}>
          {t.reading(job.datasource, job.done, job.total)}
        </p>
      ))}
      <div class="table-scroll">
        <table>
          <thead>
            <tr>
              <th>{t.name}</th>
              <th>{t.kind}</th>
              <th>{t.documents}</th>
              <th>{t.vectors}</th>
              <th>{t.refreshed}</th>
            </tr>
          </thead>
          <tbody>
            {(sources.value?.datasources ?? []).map(source => (
              <tr key={source.name}>
                <td title={source.location}>{source.title || source.name}</td>
                <td>{source.kind}</td>
                <td>{source.documents.toLocaleString()}</td>
                <td>
                  {source.embedded.toLocaleString()} / {source.chunks.toLocaleString()}
                </td>
                <td>{source.refreshed === null ? "" : formatMoment(source.refreshed)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Page>
  );
}

function AddDatasource({ onAdded }: { onAdded(): void }) {
  const [location, setLocation] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const add = async (event: Event) => {
    event.preventDefault();
    try {
      await request("POST", "/v1/datasources", { location });
      setLocation("");
      setProblem(null);
      onAdded();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <form class="inline-form" onSubmit={event => void add(event)}>
      <input
        aria-label={t.location}
        placeholder={t.locationHint}
        value={location}
        onInput={event => setLocation(event.currentTarget.value)}
      />
      <button type="submit" disabled={!location.trim()}>
        {t.add}
      </button>
      {problem && (
        <p class="field-error" role="alert">
          {problem}
        </p>
      )}
    </form>
  );
}

interface SearchHit {
  document_id: string;
  title: string;
  link: string | null;
  datasource: string;
  score: number;
  snippet: string;
}

function Search() {
  const [query, setQuery] = useState("");
  const [hits, setHits] = useState<SearchHit[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const search = async (event: Event) => {
    event.preventDefault();
    try {
      const found = await request<{ results: SearchHit[] }>("POST", "/v1/query", { query });
      setHits(found.results);
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <section aria-label={t.trySearch}>
      <form class="inline-form" onSubmit={event => void search(event)}>
        <input
          type="search"
          aria-label={t.trySearch}
          placeholder={t.trySearch}
          value={query}
          onInput={event => setQuery(event.currentTarget.value)}
        />
        <button type="submit" disabled={!query.trim()}>
          {t.search}
        </button>
      </form>
      {problem && (
        <p class="field-error" role="alert">
          {problem}
        </p>
      )}
      {hits !== null && (
        <ol class="hits">
          {hits.map(hit => (
            <li key={hit.document_id}>
              <strong>{hit.title}</strong> <span class="tag">{hit.datasource}</span>{" "}
              <span class="hint">{hit.score.toFixed(3)}</span>
              <p>{hit.snippet}</p>
            </li>
          ))}
          {hits.length === 0 && <li class="hint">{t.noMatches}</li>}
        </ol>
      )}
    </section>
  );
}
