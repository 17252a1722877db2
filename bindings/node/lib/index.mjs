import forkless from './index.js';

export const { $, Cgroup, Child, ExitError, LaunchError, Prepared, Sandbox, install, lines, prepare, run, runPipeline, runSync, spawn, uninstall } = forkless;
export default forkless;
