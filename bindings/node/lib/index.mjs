import forkless from './index.js';

export const { Child, ExitError, LaunchError, Prepared, Sandbox, install, prepare, run, spawn, uninstall } = forkless;
export default forkless;
