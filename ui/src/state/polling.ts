// When a poll asks again: not while the tab is hidden, later after each failure, at once when it is looked at again.

export interface PollClock {
  isHidden(): boolean;
  /** Calls back when the tab is shown or hidden; gives the way to end it. */
  onVisibility(callback: () => void): () => void;
  after(milliseconds: number, callback: () => void): () => void;
}

export const browserClock: PollClock = {
  isHidden: () => document.hidden,
  onVisibility(callback) {
    document.addEventListener("visibilitychange", callback);
    return () => document.removeEventListener("visibilitychange", callback);
  },
  after(milliseconds, callback) {
    const timer = setTimeout(callback, milliseconds);
    return () => clearTimeout(timer);
  },
};

const MAX_SECONDS = 60; // between two tries of a poll that fails

/** Loads now, then every `seconds` (null: only once) until it is stopped; one load at a time. */
export class Poll {
  #isStopped = false;
  #isLoading = false;
  #isWantedAgain = false;
  #failures = 0;
  #cancelTimer: (() => void) | null = null;
  #forget: () => void;

  constructor(
    readonly load: () => Promise<boolean>,
    readonly seconds: number | null,
    readonly clock: PollClock = browserClock,
  ) {
    this.#forget = clock.onVisibility(() => this.#visibilityChanged());
    void this.#run();
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelTimer?.();
    this.#forget();
  }

  /** Loads at once, whatever the clock says. */
  now(): void {
    this.#cancelTimer?.();
    void this.#run();
  }

  #visibilityChanged(): void {
    if (this.seconds === null) return;
    if (this.clock.isHidden()) this.#cancelTimer?.();
    else this.now();
  }

  async #run(): Promise<void> {
    if (this.#isStopped) return;
    if (this.#isLoading) {
      this.#isWantedAgain = true; // what is on its way may be older than what was just changed
      return;
    }
    do {
      this.#isLoading = true;
      this.#isWantedAgain = false;
      const isLoaded = await this.load();
      this.#isLoading = false;
      this.#failures = isLoaded ? 0 : this.#failures + 1;
    } while (this.#isWantedAgain && !this.#isStopped);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isStopped || this.seconds === null || this.clock.isHidden()) return;
    const seconds = delayOf(this.seconds, this.#failures);
    this.#cancelTimer = this.clock.after(seconds * 1000, () => void this.#run());
  }
}

/** How long to wait after so many failures in a row: twice as long each time, up to a minute. */
export function delayOf(seconds: number, failures: number): number {
  if (failures === 0) return seconds;
  return Math.max(seconds, Math.min(MAX_SECONDS, seconds * 2 ** Math.min(failures, 10)));
}
