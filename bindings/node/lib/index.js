'use strict';

// Each part is loaded when it is first used.
module.exports = {
  get $() { return require('./template.js').$; },
  get Cgroup() { return require('./cgroup.js').Cgroup; },
  get Child() { return require('./child.js').Child; },
  get ExitError() { return require('./error.js').ExitError; },
  get LaunchError() { return require('./error.js').LaunchError; },
  get Prepared() { return require('./child.js').Prepared; },
  get Sandbox() { return require('./sandbox.js').Sandbox; },
  get install() { return require('./install.js').install; },
  get lines() { return require('./run.js').lines; },
  get prepare() { return require('./child.js').prepare; },
  get run() { return require('./run.js').run; },
  get runSync() { return require('./run.js').runSync; },
  get runPipeline() { return require('./run.js').runPipeline; },
  get spawn() { return require('./child.js').spawn; },
  get uninstall() { return require('./install.js').uninstall; },
};
