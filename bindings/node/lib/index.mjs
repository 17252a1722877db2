import forkless from './index.js';

export const { $, Cgroup, Child, ExitError, LaunchError, Prepared, Sandbox, install, prepare, run, spawn, uninstall } = forkless;
export default forkless;
