// Which turns of a long conversation are kept in memory: those around the one that is looked at.
export const MAX_LOADED = 60; // turns whose transcripts are kept

/** The positions of the turns that may be let go. */
export function listFar(count: number, looked: number): number[] {
  if (count <= MAX_LOADED) return [];
  const first = Math.min(Math.max(0, looked - MAX_LOADED / 2), count - MAX_LOADED);
  const far: number[] = [];
  for (let index = 0; index < count; index++) {
    if (index < first || index >= first + MAX_LOADED) far.push(index);
  }
  return far;
}
