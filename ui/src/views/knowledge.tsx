// The knowledge base: datasources with their state, adding one, and a search that says why a passage was found.
import { useEffect, useState } from "preact/hooks";
import { PlusIcon } from "../components/icons.tsx";
import { AddDatasourceDialog } from "../components/knowledge/add_datasource.tsx";
import { DatasourceRow } from "../components/knowledge/datasource_row.tsx";
import { DocumentDialog } from "../components/knowledge/document_dialog.tsx";
import { type Datasource, isOpenJob, type Job, latestJobs } from "../components/knowledge/knowledge.ts";
import { KnowledgeSearch } from "../components/knowledge/knowledge_search.tsx";
import { Empty, LoadingRows } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { DatabaseIcon } from "../components/parts/view_icons.tsx";
import { useResource } from "../state/resource.ts";
import { navigate, pathOf } from "../state/route.ts";
import { t } from "../texts.ts";

const BUSY_SECONDS = 2;
const QUIET_SECONDS = 15;

export function KnowledgeView({ id }: { id: string | null }) {
  const [isBusy, setBusy] = useState(false);
  const [isAdding, setAdding] = useState(false);
  const seconds = isBusy ? BUSY_SECONDS : QUIET_SECONDS;
  const sources = useResource<{ datasources: Datasource[] }>("/v1/datasources", seconds);
  const jobs = useResource<{ jobs: Job[] }>("/v1/jobs", seconds);
  const latest = latestJobs(jobs.value?.jobs ?? []);
  const isReading = [...latest.values()].some(isOpenJob);
  useEffect(() => setBusy(isReading), [isReading]);
  const datasources = sources.value?.datasources ?? [];
  const reload = () => {
    sources.reload();
    jobs.reload();
  };
  const documents = datasources.reduce((sum, source) => sum + source.documents, 0);
  return (
    <View
      title={t.nav.knowledge}
      hint={sources.value === null ? t.views.knowledge.hint : t.views.knowledge.total(datasources.length, documents)}
      problem={sources.problem}
      onRetry={reload}
      actions={
        <button type="button" class="primary" onClick={() => setAdding(true)}>
          <PlusIcon /> {t.views.knowledge.add}
        </button>
      }
    >
      <KnowledgeSearch datasources={datasources} />
      <h2>{t.datasources}</h2>
      {sources.value === null && sources.problem === null && <LoadingRows />}
      {sources.value !== null && datasources.length === 0 && (
        <Empty icon={<DatabaseIcon />} title={t.views.knowledge.none}>
          <p>{t.views.knowledge.hint}</p>
        </Empty>
      )}
      {datasources.length > 0 && (
        <ul class="rows" aria-label={t.datasources}>
          {datasources.map(source => (
            <DatasourceRow key={source.name} source={source} job={latest.get(source.name)} onChanged={reload} />
          ))}
        </ul>
      )}
      {isAdding && <AddDatasourceDialog onAdded={reload} onClose={() => setAdding(false)} />}
      {id !== null && (
        <DocumentDialog
          key={id}
          documentId={id}
          onDeleted={() => {
            navigate(pathOf("knowledge"));
            reload();
          }}
          onClose={() => navigate(pathOf("knowledge"))}
        />
      )}
    </View>
  );
}
