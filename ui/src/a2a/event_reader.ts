// Server-sent events from pieces of text, wherever they are cut.
const MAX_EVENT = 32_000_000; // characters; a snapshot of a long run is one event

export class EventReader {
  #rest = "";
  #data: string[] = [];
  #size = 0;

  /** The data of the events that are complete. Comments and other fields are skipped. */
  read(text: string): string[] {
    const events: string[] = [];
    const lines = (this.#rest + text).split(/\r\n|\n/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") this.#finish(events);
      else if (line.startsWith("data:")) this.#add(line.slice(line.startsWith("data: ") ? 6 : 5));
    }
    if (this.#rest.length > MAX_EVENT) throw new Error("An event of the stream is too long.");
    return events;
  }

  #add(line: string): void {
    this.#size += line.length;
    if (this.#size > MAX_EVENT) throw new Error("An event of the stream is too long.");
    this.#data.push(line);
  }

  #finish(events: string[]): void {
    if (this.#data.length > 0) events.push(this.#data.join("\n"));
    this.#data = [];
    this.#size = 0;
  }
}
