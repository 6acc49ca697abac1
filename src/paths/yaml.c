/* yaml: the subset of YAML that extra_model_paths.yaml uses. */
#include "paths/folders_impl.h"

berth_status yaml_load(struct folders *f, const struct folders_config *cfg, const char *path,
                       berth_err *err)
{
    (void)f, (void)cfg;
    return err_set(err, BERTH_EUNSUPPORTED, "%s: not there yet", path);
}
