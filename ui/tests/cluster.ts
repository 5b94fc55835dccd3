// A scheduler with two nodes, both real processes, for each file of tests; and a page that is signed in.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { type APIRequestContext, type Page, test as base, expect, request } from "@playwright/test";

export const BIN = resolve(process.env.DOVETAIL_BIN ?? "../target/debug/dovetail");
export const PASSWORD = "correct horse battery staple";

export class Cluster {
  constructor(
    readonly url: string,
    readonly api: APIRequestContext,
  ) {}

  /** Sends a job and returns its number. */
  async submit(job: Record<string, unknown>): Promise<number> {
    const answer = await this.api.post("/api/v1/jobs", { data: { job: { grace_s: 1, ...job, command: ["/bin/sh", "-c", job.command ?? "true"] } } });
    expect(answer.ok(), await answer.text()).toBe(true);
    return (await answer.json()).id;
  }

  async job(id: number): Promise<{ state: string; over: boolean }> {
    return (await this.api.get(`/api/v1/jobs/${id}`)).json();
  }

  async until(id: number, ...states: string[]): Promise<void> {
    await expect.poll(async () => (await this.job(id)).state, { timeout: 30_000 }).toMatch(new RegExp(`^(${states.join("|")})$`));
  }

  /** Stops everything that is not over. */
  async clear(): Promise<void> {
    const { jobs } = await (await this.api.get("/api/v1/jobs?state=live&limit=1000")).json();
    for (const job of jobs) await this.api.post(`/api/v1/jobs/${job.id}/stop`);
    for (const job of jobs) await this.until(job.id, "cancelled", "completed", "failed");
  }
}

async function up(): Promise<{ cluster: Cluster; end: () => Promise<void> }> {
  if (!existsSync(BIN)) throw new Error(`${BIN} is not there: cargo build --locked -p dovetail, or set DOVETAIL_BIN`);
  const data = mkdtempSync(join(tmpdir(), "dovetail-page-"));
  const flags = ["up", "--virtual-gpus", "4", "--nodes", "2", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
  const server: ChildProcess = spawn(BIN, flags, { stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  server.stdout!.on("data", (text) => (said += text));
  server.stderr!.on("data", (text) => (said += text));
  const ended = new Promise<void>((done) => server.on("exit", () => done()));
  await expect.poll(() => existsSync(join(data, "client.yaml")) && said.includes("is up"), { timeout: 60_000, message: said }).toBe(true);
  const client = readFileSync(join(data, "client.yaml"), "utf8");
  const found = (key: string) => new RegExp(`^${key}: *(.*)$`, "m").exec(client)![1]!.trim();
  const url = found("server");
  const api = await request.newContext({ baseURL: url, ignoreHTTPSErrors: true, extraHTTPHeaders: { authorization: `Bearer ${found("token")}` } });
  const cluster = new Cluster(url, api);
  await expect.poll(async () => (await (await api.get("/api/v1/nodes")).json()).length, { timeout: 30_000 }).toBe(2);
  const set = await api.patch("/api/v1/users/admin", { data: { password: PASSWORD } });
  expect(set.ok(), await set.text()).toBe(true);
  const end = async () => {
    await cluster.clear();
    await api.dispose();
    server.kill("SIGTERM");
    await ended;
    rmSync(data, { recursive: true, force: true });
  };
  return { cluster, end };
}

export const test = base.extend<{ page: Page }, { cluster: Cluster }>({
  cluster: [
    async ({}, use) => {
      const { cluster, end } = await up();
      await use(cluster);
      await end();
    },
    { scope: "worker" },
  ],
  baseURL: async ({ cluster }, use) => use(cluster.url),
  page: async ({ page, cluster }, use) => {
    // Nothing may be asked of any other host, nothing may break unseen.
    const wrong: string[] = [];
    page.on("request", (asked) => {
      const to = new URL(asked.url());
      if (to.origin !== cluster.url && !["blob:", "data:"].includes(to.protocol)) wrong.push(`asked ${asked.url()}`);
    });
    page.on("pageerror", (error) => wrong.push(error.message));
    page.on("console", (message) => {
      if (message.text().includes("Content Security Policy")) wrong.push(message.text());
    });
    page.on("dialog", (dialog) => {
      wrong.push(`a dialog of the browser: ${dialog.message()}`);
      void dialog.dismiss();
    });
    await use(page);
    expect(wrong).toEqual([]);
  },
});

/** Signs in as people do. */
export async function signIn(page: Page, name = "admin", password = PASSWORD): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Name").fill(name);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: `Hello, ${name}` })).toBeVisible();
}

export { expect };
