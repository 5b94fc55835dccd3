// Sign-in and sign-out.

import { Problem, request, get, me, messageOf, send } from "./api";
import { startLive, stopLive } from "./live";
import type { CurrentUser } from "./types";

/** Loads the signed-in user when the page is opened. Returns an error message, if any. */
export async function loadUser(): Promise<string | undefined> {
  try {
    me.value = await get<CurrentUser>("/me");
    void startLive();
    return undefined;
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return undefined;
    return messageOf(error);
  }
}

export async function signIn(name: string, password: string): Promise<void> {
  const { user } = await send<{ user: CurrentUser }>("POST", "/session", { name, password });
  // The CSRF token may be missing in the answer to a sign-in.
  me.value = user.csrf ? user : await get<CurrentUser>("/me");
  void startLive();
}

export async function signOut(): Promise<void> {
  stopLive();
  try {
    await request("/session", { method: "DELETE" });
  } finally {
    me.value = null;
  }
}

/** Whether the user may run jobs in a virtual cluster. */
export function mayRun(user: CurrentUser, vc: string): boolean {
  return user.admin || ["member", "operator", "administrator"].includes(user.roles?.[vc] ?? "");
}

/** Whether the user may stop or change a job: as its owner, or as operator of its virtual cluster. */
export function mayControl(user: CurrentUser | null | undefined, job: { user: string; tenant: string }): boolean {
  if (!user) return false;
  return user.admin || user.name === job.user || ["operator", "administrator"].includes(user.roles?.[job.tenant] ?? "");
}
