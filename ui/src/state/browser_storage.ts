// Small values kept in this browser. A browser that keeps nothing, or is full, loses them and works.
export function readStored<T>(key: string, fallback: T): T {
  try {
    const text = localStorage.getItem(key);
    return text === null ? fallback : (JSON.parse(text) as T);
  } catch {
    return fallback;
  }
}

export function writeStored(key: string, value: unknown): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Nothing here is needed: a draft is still in its box, a setting lasts until the reload.
  }
}
