// The frame of the page: which parts of it are open.
import { effect, signal } from "@preact/signals";
import { readStored, writeStored } from "./browser_storage.ts";

const KEY = "caipe.sidebar";
const NARROW = matchMedia("(max-width: 760px)");

export const isNarrow = signal(NARROW.matches);
/** The sidebar of a wide page. */
export const isSidebarShown = signal(readStored(KEY, true));
/** The sidebar as a drawer, on a narrow one. */
export const isDrawerOpen = signal(false);
export const isPaletteOpen = signal(false);
export const isHelpOpen = signal(false);

NARROW.addEventListener("change", event => {
  isNarrow.value = event.matches;
  isDrawerOpen.value = false;
});
effect(() => writeStored(KEY, isSidebarShown.value));

export function toggleSidebar(): void {
  if (isNarrow.value) isDrawerOpen.value = !isDrawerOpen.value;
  else isSidebarShown.value = !isSidebarShown.value;
}
