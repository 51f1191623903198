// A conversation that somebody shared, read-only.
import { useEffect, useState } from "preact/hooks";
import { decodeTask } from "../a2a/decode.ts";
import type { Task } from "../a2a/wire.ts";
import { describeError, get } from "../api/rest.ts";
import { Empty, LoadingRows } from "../components/parts/states.tsx";
import { View } from "../components/parts/view.tsx";
import { LinkIcon } from "../components/parts/view_icons.tsx";
import { SharedTurn } from "../components/shared/shared_turn.tsx";
import { Turn } from "../state/turn.ts";
import { t } from "../texts.ts";

interface SharedPage {
  title: string;
  tasks: Task[];
  next_page_token?: string | null;
}

export function SharedView({ token }: { token: string }) {
  const [title, setTitle] = useState("");
  const [turns, setTurns] = useState<Turn[] | null>(null);
  const [older, setOlder] = useState<string | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const load = async (pageToken: string) => {
    try {
      const query = pageToken ? `?${new URLSearchParams({ page_token: pageToken })}` : "";
      const page = await get<SharedPage>(`/v1/shared/${encodeURIComponent(token)}${query}`);
      const loaded = page.tasks.map(readTurn).reverse(); // the newest comes first
      setTitle(page.title);
      setTurns(all => [...loaded, ...(pageToken ? (all ?? []) : [])]);
      setOlder(page.next_page_token ?? null);
      setProblem(null);
    } catch (error) {
      setProblem(describeError(error));
    }
  };
  useEffect(() => void load(""), [token]);
  return (
    <View title={title || t.views.shared.title} hint={t.views.shared.hint} problem={turns === null ? null : problem}>
      {turns === null && problem === null && <LoadingRows />}
      {turns === null && problem !== null && (
        <Empty icon={<LinkIcon />} title={t.views.shared.gone}>
          <p>{problem}</p>
        </Empty>
      )}
      {older !== null && (
        <button type="button" class="load-more" onClick={() => void load(older)}>
          {t.loadEarlier}
        </button>
      )}
      {(turns ?? []).map(turn => (
        <SharedTurn key={turn.taskId} turn={turn} />
      ))}
    </View>
  );
}

function readTurn(task: Task): Turn {
  return Turn.fromEvents(task.contextId, task.id, decodeTask(task));
}
