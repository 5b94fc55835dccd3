// Only for developing, and only for what the server does not have yet: serves the built page, answers a few paths with
// made-up data, and hands everything else to a real server (DOVETAIL_URL with DOVETAIL_TOKEN).
import { createServer } from "node:http";
import { request } from "node:https";
import { readFile } from "node:fs/promises";

const target = new URL(process.env.DOVETAIL_URL ?? "https://127.0.0.1:7878");
const token = process.env.DOVETAIL_TOKEN;
const port = Number(process.env.PORT ?? 5200);
const POLICY = "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'";
const now = () => Date.now() * 1000;
const json = (res, value, status = 200) => {
  res.writeHead(status, { "content-type": "application/json" });
  res.end(JSON.stringify(value));
};
const cell = (id, type, level, gpus, used, children = [], more = {}) => ({ id, type, level, gpus, used_gpus: used, health: "ok", node: null, priority: null, job: null, children, ...more });
const node = (id, used) => cell(id, "8-GPU node", 2, 8, used, Array.from({ length: 8 }, (_, i) => cell(`${id}/${i}`, "GPU", 1, 1, i < used ? 1 : 0, [], { node: id, priority: i < used ? 0 : null, job: i < used ? 1 : null, health: id === "n4" && i === 7 ? "bad" : "ok" })), { node: id });
const vc = (name, g, used, borrowed, lent, more = {}) => ({ name, guaranteed_gpus: g, most_borrowed: null, used_gpus: used, borrowed_gpus: borrowed, lent_gpus: lent, running_jobs: 2, waiting_jobs: 1, user_cap_gpus: null, max_priority: null, everyone: "member", role: null, cells: [], ...more });
const vcs = [vc("vision", 16, 20, 4, 0, { role: "administrator", cells: [node("n1", 8), node("n2", 3)] }), vc("speech", 12, 5, 0, 4, { user_cap_gpus: 8, cells: [node("n3", 5), node("n4", 0)] }), vc("students", 4, 0, 0, 0, { everyone: "viewer", max_priority: 10 })];
const users = [{ name: "admin", admin: true, email: "", roles: {}, has_password: true, tokens: 1 }, { name: "ann", admin: false, email: "ann@example.org", roles: { vision: "member", speech: "viewer" }, has_password: true, tokens: 2 }];
const tokens = [{ id: "t1", label: "laptop", scope: "jobs", created: now() - 9e11, expires: now() + 2e12, last_used: now() - 1e9 }];
const days = Array.from({ length: 21 }, (_, i) => new Date(Date.now() - (20 - i) * 864e5).toISOString().slice(0, 10));
const fixed = {
  "GET /info": { name: "Dovetail", version: "0.6.0", api: "v1", sign_in: ["password"], oidc_url: null },
  "GET /vcs": { mode: "cells", gpus: 32, vcs },
  "GET /users": users,
  "GET /me/tokens": tokens,
  "GET /me/notify": { email: true, webhook: "", on: ["failed", "preempted"], pending_s: 3600 },
  "GET /policies": [{ name: "fifo", what: "first come, first served", paper: "", key: "time of submission" }, { name: "tiresias", what: "jobs that had little service first, in two queues", paper: "Gu et al., NSDI 2019", key: "attained service" }],
  "GET /templates": [{ name: "pytorch-ddp", title: "PyTorch, several GPUs", description: "One process for each GPU, as torchrun starts them.", parameters: [{ name: "gpus", type: "number", default: 2, min: 1, max: 64, help: "GPUs at once" }, { name: "script", type: "text", default: "train.py", help: "The script" }, { name: "precision", type: "choice", default: "bf16", choices: ["fp32", "bf16", "fp16"], help: "" }, { name: "debug", type: "flag", default: false, help: "Print more" }], text: "" }],
  "POST /templates/pytorch-ddp/render": { text: "name: ddp\ncommand: torchrun train.py\ngpus: 2\nprocesses: per-gpu\n" },
  "GET /audit": { entries: [{ seq: 12, at: now() - 6e8, who: "admin", what: "vc.set", target: "vision", before: { guaranteed_gpus: 8 }, after: { guaranteed_gpus: 16 } }, { seq: 11, at: now() - 9e9, who: "admin", what: "user.add", target: "ann", before: null, after: { admin: false } }], next: null },
  "GET /usage": days.flatMap((day, i) => [["ann", "vision", 20 + 9 * Math.sin(i)], ["bob", "speech", 12 + 5 * Math.cos(i * 2)], ["carl", "vision", i % 3 ? 4 : 0]].map(([user, tenant, h]) => ({ day, user, tenant, gpu_hours: h, jobs: 3 }))),
};
const diff = { changes: [{ vc: "vision", field: "guaranteed_gpus", before: 16, after: 12 }], effects: ["vision keeps its 20 GPUs as long as nobody else asks for theirs."], stops: [7], starts: [9, 11], refused: null };

createServer(async (req, res) => {
  const url = new URL(req.url, "http://x");
  const path = url.pathname.replace("/api/v1", "");
  if (!url.pathname.startsWith("/api/")) {
    const name = /\.(js|css|svg)$/.test(url.pathname) ? url.pathname : "/index.html";
    const type = { js: "text/javascript", css: "text/css", svg: "image/svg+xml", html: "text/html" }[name.split(".").at(-1)];
    res.writeHead(200, { "content-type": type, "content-security-policy": POLICY });
    return res.end(await readFile(new URL(`../../crates/web/page${name}`, import.meta.url)));
  }
  const key = `${req.method} ${path}`;
  if (path.startsWith("/vcs") && req.method !== "GET") return json(res, diff);
  if (key === "GET /session") return json(res, {}, 401);
  if (!process.env.PLAIN && key in fixed) return json(res, fixed[key]);
  const headers = { ...req.headers, host: target.host, authorization: `Bearer ${token}` };
  const query = new URLSearchParams(url.search);
  for (const unknown of ["q", "sort", "cursor"]) query.delete(unknown);
  const onward = request({ host: target.hostname, port: target.port, path: `${url.pathname}?${query}`, method: req.method, headers, rejectUnauthorized: false }, (answer) => {
    if (/^\/jobs\/\d+\/explain$/.test(path)) {
      let text = "";
      answer.on("data", (d) => (text += d));
      answer.on("end", () => {
        const why = JSON.parse(text);
        json(res, { ...why, blockers: why.reasons.map((t) => ({ code: "x", text: t })), jobs_ahead: [{ id: 1, name: "resnet", user: "ann", gpus: 4, state: "running" }], instead: [{ change: "gpus", sentence: "With 2 GPUs it would start now on n1.", starts_now: true }], eta: { p50: now() + 6e8, p90: now() + 24e8, p50_s: 600, p90_s: 2400, samples: 200, based_on: "Run times of 412 jobs of this cluster" } });
      });
      return;
    }
    res.writeHead(answer.statusCode, answer.headers);
    answer.pipe(res);
  });
  onward.on("error", () => json(res, { detail: "no server behind" }, 502));
  req.pipe(onward);
}).listen(port, "127.0.0.1");
