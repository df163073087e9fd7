// Every view: its path under /admin, its name in the navigation (if it has one), and its module.
export const VIEWS = [
  { path: "", under: "Tasks", title: "Tasks", load: () => import("./views/tasks.js") },
  { path: "tasks", name: "Tasks", title: "Tasks", load: () => import("./views/tasks.js") },
  { path: "tasks/:id", under: "Tasks", title: "Task", load: () => import("./views/task.js") },
  { path: "nodes", name: "Nodes", title: "Nodes", load: () => import("./views/nodes.js") },
  { path: "workers", name: "Workers", title: "Workers", load: () => import("./views/workers.js") },
  { path: "audit", name: "Audit", title: "Audit", role: "admin", load: () => import("./views/audit.js") },
];
