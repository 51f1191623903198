// Links to read a conversation.
import { request } from "../api/rest.ts";

export interface Share {
  token: string;
  path: string;
}

export function createShare(contextId: string): Promise<Share> {
  return request("POST", "/v1/shares", { context_id: contextId });
}

export function deleteShare(token: string): Promise<void> {
  return request("DELETE", `/v1/shares/${encodeURIComponent(token)}`);
}
