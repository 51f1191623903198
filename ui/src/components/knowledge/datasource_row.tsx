// One datasource: how much of it is there, how fresh it is, what went wrong, and what can be done about it.
import { useState } from "preact/hooks";
import { describeError } from "../../api/rest.ts";
import { t } from "../../texts.ts";
import { formatInterval } from "../../text/relative_time.ts";
import { StopIcon } from "../icons.tsx";
import { ConfirmDialog } from "../parts/confirm_dialog.tsx";
import { Moment } from "../parts/moment.tsx";
import { ProblemNote } from "../parts/states.tsx";
import { StatusBadge } from "../parts/status_badge.tsx";
import { BranchIcon, ChevronIcon, DatabaseIcon, FolderIcon, GlobeIcon, RefreshIcon, TrashIcon, UploadIcon } from "../parts/view_icons.tsx";
import {
  type Datasource,
  isOpenJob,
  type Job,
  refreshDatasource,
  removeDatasource,
  stateOf,
  stopJob,
  TONES,
} from "./knowledge.ts";

interface RowProps {
  source: Datasource;
  job: Job | undefined;
  onChanged(): void;
}

export function DatasourceRow({ source, job, onChanged }: RowProps) {
  const texts = t.views.knowledge;
  const state = stateOf(source, job);
  return (
    <li>
      <details class="row-details">
        <summary class="row">
          <ChevronIcon />
          <span class="row-icon">{iconOf(source)}</span>
          <span class="row-main">
            <span class="row-title">{source.title || source.name}</span>
            <span class="row-text">{source.location}</span>
          </span>
          <span class="row-side">
            <span class="row-fact">{texts.documents(source.documents)}</span>
            {source.refreshed !== null && (
              <span class="row-fact">
                <Moment at={source.refreshed} />
              </span>
            )}
            <StatusBadge tone={TONES[state]}>{texts.state[state]}</StatusBadge>
          </span>
        </summary>
        <DatasourceBody source={source} job={job} onChanged={onChanged} />
      </details>
      {job !== undefined && isOpenJob(job) && <JobProgress source={source} job={job} onChanged={onChanged} />}
    </li>
  );
}

function iconOf(source: Datasource) {
  const icons: { [kind: string]: () => preact.JSX.Element } = {
    folder: FolderIcon,
    file: FolderIcon,
    site: GlobeIcon,
    web: GlobeIcon,
    git: BranchIcon,
    uploads: UploadIcon,
    upload: UploadIcon,
  };
  const Icon = icons[source.kind] ?? DatabaseIcon;
  return <Icon />;
}

function JobProgress({ source, job, onChanged }: { source: Datasource; job: Job; onChanged(): void }) {
  const [isStopping, setStopping] = useState(false);
  const stop = async () => {
    setStopping(true);
    await stopJob(job).catch(() => undefined); // it may have ended by itself
    onChanged();
  };
  const label = t.reading(source.title || source.name, job.done + job.skipped, job.total);
  return (
    <div class="job">
      <progress aria-label={label} max={job.total ?? undefined} value={job.total === null ? undefined : job.done + job.skipped} />
      <span class="hint">{label}</span>
      <button type="button" class="small" disabled={isStopping} onClick={() => void stop()}>
        <StopIcon /> {isStopping ? t.stopping : t.stop}
      </button>
    </div>
  );
}

function DatasourceBody({ source, job, onChanged }: RowProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [isRemoving, setRemoving] = useState(false);
  const texts = t.views.knowledge;
  const run = async (action: () => Promise<unknown>) => {
    setProblem(null);
    try {
      await action();
      onChanged();
    } catch (error) {
      setProblem(describeError(error));
    } finally {
      setRemoving(false);
    }
  };
  const isBusy = job !== undefined && isOpenJob(job);
  return (
    <div class="row-body">
      {problem !== null && <ProblemNote text={problem} />}
      <DatasourceFacts source={source} />
      {job !== undefined && !isBusy && <JobProblems job={job} />}
      <div class="buttons">
        {source.kind !== "push" && (
          <button type="button" class="small" disabled={isBusy} onClick={() => void run(() => refreshDatasource(source))}>
            <RefreshIcon /> {t.views.refresh}
          </button>
        )}
        <button type="button" class="small danger" onClick={() => setRemoving(true)}>
          <TrashIcon /> {texts.remove}
        </button>
      </div>
      {isRemoving && (
        <ConfirmDialog
          title={texts.removeTitle(source.title || source.name)}
          text={texts.removeText(source.documents)}
          action={texts.remove}
          onConfirm={() => run(() => removeDatasource(source))}
          onClose={() => setRemoving(false)}
        />
      )}
    </div>
  );
}

function DatasourceFacts({ source }: { source: Datasource }) {
  const texts = t.views.knowledge;
  const kinds = Object.entries(source.document_kinds).map(([kind, count]) => `${count.toLocaleString()} ${kind}`);
  return (
    <dl class="fact-grid">
      <Fact name={t.name}>{source.name}</Fact>
      <Fact name={t.kind}>{source.kind}</Fact>
      <Fact name={t.location}>{source.location}</Fact>
      <Fact name={t.documents}>
        {source.documents.toLocaleString()}
        {kinds.length > 0 && ` (${kinds.join(", ")})`}
      </Fact>
      <Fact name={t.vectors}>{texts.vectors(source.embedded, source.chunks)}</Fact>
      <Fact name={t.refreshed}>{source.refreshed === null ? texts.never : <Moment at={source.refreshed} />}</Fact>
      <Fact name={texts.nextRefresh}>
        {source.next_refresh === null ? texts.onDemand : <Moment at={source.next_refresh} />}
        {source.refresh_every !== null && ` (${texts.every(formatInterval(source.refresh_every))})`}
      </Fact>
      {source.refresh_failures > 0 && <Fact name={texts.failures}>{texts.failedTimes(source.refresh_failures)}</Fact>}
      {source.restricted && <Fact name={texts.access}>{texts.restricted}</Fact>}
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function JobProblems({ job }: { job: Job }) {
  const texts = t.views.knowledge;
  return (
    <>
      {job.problem && <p class="note note-bad">{job.problem}</p>}
      {job.failed.length > 0 && (
        <details class="file">
          <summary>{texts.unreadable(job.failed.length)}</summary>
          <ul class="plain-list">
            {job.failed.map(item => (
              <li key={item.address}>
                <code>{item.address}</code> {item.reason}
              </li>
            ))}
          </ul>
        </details>
      )}
      {job.cut.length > 0 && (
        <details class="file">
          <summary>{texts.shortened(job.cut.length)}</summary>
          <ul class="plain-list">
            {job.cut.map(item => (
              <li key={item.address}>
                <code>{item.address}</code> {item.missing}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}
