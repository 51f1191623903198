// The address of the page as state. Every view has a path, so that reload, back and links work.
import { computed, signal } from "@preact/signals";

export type View =
  | "chat"
  | "inbox"
  | "agents"
  | "workflows"
  | "skills"
  | "knowledge"
  | "runs"
  | "settings"
  | "setup"
  | "shared";

export interface Route {
  view: View;
  id: string | null;
}

const path = signal(location.pathname);
addEventListener("popstate", () => (path.value = location.pathname));

export const route = computed<Route>(() => parsePath(path.value));

const VIEWS: readonly string[] = ["inbox", "agents", "workflows", "skills", "knowledge", "runs", "settings", "setup", "shared"];

/** `/c/ID` is a conversation, `/c/-/VIEW/ID` a thing in another view: a context id may be any text. */
export function parsePath(pathname: string): Route {
  const [, area, first, view, id] = pathname.split("/").map(decodeURIComponent);
  if (area !== "c" || !first) return { view: "chat", id: null };
  if (first === "-" && view !== undefined && VIEWS.includes(view)) return { view: view as View, id: id || null };
  return { view: "chat", id: first };
}

export function pathOf(view: View, id: string | null = null): string {
  if (view === "chat") return id === null ? "/" : `/c/${encodeURIComponent(id)}`;
  return id === null ? `/c/-/${view}` : `/c/-/${view}/${encodeURIComponent(id)}`;
}

export function navigate(to: string, replace = false): void {
  if (to === location.pathname + location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  path.value = location.pathname;
}
