// Every view: its path under /admin, its name in the navigation (if it has one), and its module.
export const VIEWS = [
  { path: "", name: "Overview", title: "Overview", load: () => import("./views/overview.js") },
  { path: "tasks", name: "Tasks", title: "Tasks", load: () => import("./views/tasks.js") },
  { path: "tasks/:id", under: "Tasks", title: "Task", load: () => import("./views/task.js") },
  { path: "failed", name: "Failed", title: "Failed", load: () => import("./views/failed.js") },
  { path: "schedules", name: "Schedules", title: "Schedules", load: () => import("./views/schedules.js") },
  { path: "load", name: "Due load", title: "Due load", load: () => import("./views/load.js") },
  { path: "queues", name: "Queues", title: "Queues", load: () => import("./views/queues.js") },
  { path: "ledger", name: "Ledger", title: "Ledger", load: () => import("./views/ledger.js") },
  { path: "nodes", name: "Nodes", title: "Nodes", load: () => import("./views/nodes.js") },
  { path: "workers", name: "Workers", title: "Workers", load: () => import("./views/workers.js") },
  { path: "bulk", name: "Bulk actions", title: "Bulk actions", load: () => import("./views/bulk.js") },
  { path: "bulk/:id", under: "Bulk actions", title: "Bulk action", load: () => import("./views/bulk_job.js") },
  { path: "alerts", name: "Alerts", title: "Alerts", load: () => import("./views/alerts.js") },
  { path: "audit", name: "Audit", title: "Audit", role: "admin", load: () => import("./views/audit.js") },
];
