// A view that is loaded when it is opened: the conversation does not wait for it.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { LoadingRows, ProblemNote } from "../components/parts/states.tsx";
import type { Route } from "../state/route.ts";
import { t } from "../texts.ts";

const loaded = signal<typeof import("./other_views.tsx") | null>(null);
const hasFailed = signal(false);

async function load(): Promise<void> {
  hasFailed.value = false;
  try {
    loaded.value = await import("./other_views.tsx");
  } catch {
    hasFailed.value = true; // the server is away, or has a newer build
  }
}

export function LazyView(route: Route) {
  useEffect(() => {
    if (loaded.value === null) void load();
  }, []);
  if (loaded.value !== null) return <loaded.value.OtherView {...route} />;
  return (
    <div class="view">{hasFailed.value ? <ProblemNote text={t.unreachable} onRetry={() => location.reload()} /> : <LoadingRows />}</div>
  );
}
